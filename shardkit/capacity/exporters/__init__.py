"""Exporters of a meter's figures: to Prometheus, OpenTelemetry, CloudWatch and a log."""
