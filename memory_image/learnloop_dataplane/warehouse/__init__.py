"""The long memory of the platform: whole episodes in ClickHouse, when one is configured. PostgreSQL alone otherwise."""
