"""Backends run the ranks of an attempt. Each backend renders its object and reads its ends; everything else about an
attempt is the same for all of them, and is decided elsewhere."""
