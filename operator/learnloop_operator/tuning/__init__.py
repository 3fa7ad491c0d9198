"""What tunes Python, Kopf or zlib from within. LEARNLOOP_TUNING_OFF switches each part off; all works without them."""
