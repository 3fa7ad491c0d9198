"""The artifact store: a directory or an S3 bucket."""
