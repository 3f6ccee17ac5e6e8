"""The metadata quorum: catalog, member and client as pure machines."""
