"""Units that Anda's and Harmonia's papers compare theirs with, as far as their texts define them."""
