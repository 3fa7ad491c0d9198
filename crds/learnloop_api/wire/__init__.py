"""Messages and documents that cross a process boundary. Everything read through them is untrusted input."""
