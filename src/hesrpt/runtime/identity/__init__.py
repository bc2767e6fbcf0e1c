"""How a resumed run recognises jobs and items that it has seen before."""
