"""What loading costs on this machine and this store, and which settings suit them."""
