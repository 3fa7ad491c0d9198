"""Background tasks, batches, queues and limits within one process."""
