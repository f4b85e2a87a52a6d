"""What a disaggregated serving tier is: the words that every room shares."""
