"""What Prometheus reads of learning: series of agents, of their model versions and of training runs, all bounded."""
