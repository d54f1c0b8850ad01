"""A stand-in of AWS Glue's modules, which exist in Glue only: what examples/glue_job.py uses of them."""
