"""The Kafka protocol server: frames in, handlers over the log, frames out."""
