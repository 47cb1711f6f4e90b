"""Text: documents out of files, folders, hub data sets and the installation itself, and WordPiece tokenizers."""
