"""Tables that are cut by time, so that what is old goes as a whole."""
