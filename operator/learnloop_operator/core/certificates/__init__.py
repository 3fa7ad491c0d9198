"""When certificates are made, renewed and left: decisions about authorities and what they sign."""
