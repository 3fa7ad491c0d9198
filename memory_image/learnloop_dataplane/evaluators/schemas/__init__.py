"""How a JSON Schema is checked without hanging anybody: linear patterns, and a process for what may cost much."""
