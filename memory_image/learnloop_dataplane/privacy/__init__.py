"""People behind the data: redaction, pseudonyms, opt-outs, and tombstones of what was erased."""
