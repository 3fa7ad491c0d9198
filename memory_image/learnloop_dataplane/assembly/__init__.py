"""Puts the parts of one process together: one module for each group of routes, with the work it does in the background.

A route depends on the parts that it uses (`api.http.dependencies`), and knows no others.
"""
