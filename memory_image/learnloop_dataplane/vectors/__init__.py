"""The vector store port, and what stands behind it: pgvector, or Weaviate with a tenant for each agent."""
