"""What people say about answers: labels and notes, and how far judges agree with them."""
