"""What is happening: pages in, samples of each pool out."""
