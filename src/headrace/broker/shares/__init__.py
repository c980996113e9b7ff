"""Share groups (KIP-932): many consumers share a partition, record by record, and settle each record by itself."""
