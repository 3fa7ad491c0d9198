"""An append-only hash chain of audit records for each namespace: signed, and verifiable."""
