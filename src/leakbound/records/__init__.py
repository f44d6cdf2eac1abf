"""Records as people store them: folders and Parquet files of images, tables, arrays. No settings are needed."""
