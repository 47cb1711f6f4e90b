"""Text: documents out of files, folders, hub data sets and the installation, and WordPiece tokenizers."""
