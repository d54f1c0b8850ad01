"""What a meter counted, handed on: to Prometheus, to OpenTelemetry, to CloudWatch, to a log. One file an exporter."""
