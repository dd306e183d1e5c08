"""One module per screen: reads from its source and fills its template."""
