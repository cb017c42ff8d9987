"""elasticrun, a launcher for distributed training: one binary, which this package was installed with."""
