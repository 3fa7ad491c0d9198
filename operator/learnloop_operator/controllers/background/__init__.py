"""What runs beside the passes: reads of pods' counters, and reports to the data plane."""
