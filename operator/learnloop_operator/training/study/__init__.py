"""A TrainingJob with a study: trials as child TrainingJobs, and the best one's artifact as its own."""
