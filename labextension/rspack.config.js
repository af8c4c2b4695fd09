// Numbers in the order of imports: the default ones are made from absolute paths, and the assets must be the same wherever they are built.
module.exports = { optimization: { moduleIds: 'natural', chunkIds: 'natural' } };
