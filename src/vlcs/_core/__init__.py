"""The implementation. Public names are re-exported by `vlcs`; nothing here is public by itself."""
