"""Tokenizes HTML, XML and Markdown; writes none of them."""
