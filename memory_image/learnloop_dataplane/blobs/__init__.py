"""Where the bytes of artifacts and checkpoints lie: a directory or an S3 bucket."""
