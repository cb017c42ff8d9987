"""elasticrun, a launcher for distributed training. This package contains its binary."""
