"""The durable side of a bookie and of a metadata member, in terms of the ports."""
