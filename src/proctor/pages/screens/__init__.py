"""One file per screen: what it asks its source for, and what its template is given."""
