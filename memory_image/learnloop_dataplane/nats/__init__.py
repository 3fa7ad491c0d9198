"""The connection to NATS: streams, subjects, consumers, rights, and the outbox of events."""
