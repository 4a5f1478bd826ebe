// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IOMMU for the engine, where devices may have DMA operations of their own.
 *
 * It merges what lies behind each other in a scatter-gather table, sources up to the size
 * of a segment and destinations less, so that the two sides of a table are cut differently.
 * An access where nothing is mapped is counted, and does nothing else.
 */
#include <linux/dma-map-ops.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/xarray.h>

#include "faultdma.h"

/* Pages of a destination that are merged at most. */
#define FAULTDMA_DST_PAGES	5

/* From physical addresses it can be told. */
#define FAULTDMA_IOVA		BIT_ULL(44)

static DEFINE_XARRAY(faultdma_pages);	/* by page of the address, the physical page */
static atomic64_t faultdma_next_iova = ATOMIC64_INIT(FAULTDMA_IOVA);

static dma_addr_t faultdma_reserve(size_t bytes)
{
	/* A page between two segments: to run over the end of one is noticed. */
	return atomic64_fetch_add(PAGE_ALIGN(bytes) + PAGE_SIZE, &faultdma_next_iova);
}

static bool faultdma_map(dma_addr_t addr, phys_addr_t phys, size_t bytes)
{
	size_t done;
	void *entry;

	for (done = 0; done < bytes; done += PAGE_SIZE) {
		entry = xa_store(&faultdma_pages, (addr + done) >> PAGE_SHIFT,
				 xa_mk_value((phys + done) >> PAGE_SHIFT), GFP_ATOMIC);
		if (xa_is_err(entry))
			return false;
	}
	return true;
}

static void faultdma_unmap(dma_addr_t addr, size_t bytes)
{
	size_t done;

	for (done = 0; done < bytes; done += PAGE_SIZE)
		xa_erase(&faultdma_pages, (addr + done) >> PAGE_SHIFT);
}

static dma_addr_t faultdma_map_page(struct device *dev, struct page *page, unsigned long offset,
				    size_t size, enum dma_data_direction dir,
				    unsigned long attrs)
{
	dma_addr_t addr = faultdma_reserve(offset + size);

	if (!faultdma_map(addr, page_to_phys(page), offset + size))
		return DMA_MAPPING_ERROR;
	return addr + offset;
}

static void faultdma_unmap_page(struct device *dev, dma_addr_t addr, size_t size,
				enum dma_data_direction dir, unsigned long attrs)
{
	faultdma_unmap(addr & PAGE_MASK, size + offset_in_page(addr));
}

static void faultdma_unmap_sg(struct device *dev, struct scatterlist *sgl, int nents,
			      enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		faultdma_unmap(sg_dma_address(sg), sg_dma_len(sg));
	}
}

/* Entries are whole pages: the one client of this mode has no others. */
static int faultdma_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
			   enum dma_data_direction dir, unsigned long attrs)
{
	size_t most = dir == DMA_TO_DEVICE ? dma_get_max_seg_size(dev) :
					     FAULTDMA_DST_PAGES * PAGE_SIZE;
	struct scatterlist *sg, *segment = NULL;
	int i, segments = 0;

	for_each_sg(sgl, sg, nents, i) {
		size_t len = sg->length;
		phys_addr_t phys = sg_phys(sg);

		if (offset_in_page(sg->offset) || offset_in_page(len))
			goto fail;
		if (!segment || sg_dma_len(segment) + len > most) {
			segment = segment ? sg_next(segment) : sgl;
			/* Space for what may follow. */
			sg_dma_address(segment) = faultdma_reserve(max(most, len));
			sg_dma_len(segment) = 0;
			segments++;
		}
		if (!faultdma_map(sg_dma_address(segment) + sg_dma_len(segment), phys, len))
			goto fail;
		sg_dma_len(segment) += len;
	}
	if (segments < nents)
		sg_dma_len(sg_next(segment)) = 0;
	return segments;
fail:
	if (segments && segments < nents)
		sg_dma_len(sg_next(segment)) = 0;
	if (segments)
		faultdma_unmap_sg(dev, sgl, nents, dir, attrs);
	return -EIO;
}

/* What bounces has a limit, and nothing else tells of it. */
static size_t faultdma_max_mapping_size(struct device *dev)
{
	return faultdma_bounces ? SZ_256K : SIZE_MAX;
}

static const struct dma_map_ops faultdma_ops = {
	.max_mapping_size = faultdma_max_mapping_size,
	.map_page = faultdma_map_page,
	.unmap_page = faultdma_unmap_page,
	.map_sg = faultdma_map_sg,
	.unmap_sg = faultdma_unmap_sg,
};

/**
 * faultdma_iommu_address - where the engine reads or writes
 * @addr: address that it was given
 *
 * Return: address for the CPU, or NULL if nothing is mapped there.
 */
void *faultdma_iommu_address(dma_addr_t addr)
{
	void *entry = xa_load(&faultdma_pages, addr >> PAGE_SHIFT);

	if (!entry) {
		faultdma_iommu_faults++;
		return NULL;
	}
	return __va(PFN_PHYS(xa_to_value(entry))) + offset_in_page(addr);
}

/**
 * faultdma_iommu_start - put the engine behind the IOMMU, if it shall be
 * @dev: of the engine
 *
 * Return: 0
 */
int faultdma_iommu_start(struct device *dev)
{
	if (faultdma_iommu)
		set_dma_ops(dev, &faultdma_ops);
	return 0;
}

/**
 * faultdma_iommu_stop - undo it
 * @dev: of the engine
 */
void faultdma_iommu_stop(struct device *dev)
{
	set_dma_ops(dev, NULL);
	xa_destroy(&faultdma_pages);
}
