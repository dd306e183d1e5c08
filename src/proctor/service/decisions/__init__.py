"""Where everything is decided: processes beside the service, a pool of them shared fairly, and what is said to them."""
