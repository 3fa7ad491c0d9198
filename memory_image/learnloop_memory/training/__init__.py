"""TrainingJobs by REST, for whoever speaks no Kubernetes."""
