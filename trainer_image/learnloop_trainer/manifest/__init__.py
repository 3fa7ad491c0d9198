"""What proves a trained model: export, evaluation, comparison, and the manifest."""
