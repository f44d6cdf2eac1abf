"""MLflow as a view of finished jobs. Files remain the truth, and any store can be filled again from them."""
