"""Text: documents from files, folders, hub data sets and the installation, and WordPiece tokenizers."""
