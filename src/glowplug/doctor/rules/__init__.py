"""The rules over manifests, one theme a file: small functions that yield what is wrong, and a table that explains each."""
