"""What proctor is made of: the bounds of its dependencies, their licences, and a bill of materials."""
