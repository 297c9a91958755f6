"""arXiv 2601.22532 as data: experiments, model-dataset pairs, published numbers and evaluated questions."""
