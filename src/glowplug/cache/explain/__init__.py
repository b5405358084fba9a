"""Why a start missed: what differs between its envelope and the nearest one in the store, the likely accidents first."""
