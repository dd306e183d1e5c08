"""ECMAScript regular expressions under limits that cannot be escaped."""
